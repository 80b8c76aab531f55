<#
.SYNOPSIS
Installs this host's agent as a scheduled task that starts with the machine, or brings it up to date.

.DESCRIPTION
The package goes into Program Files, settings and state into ProgramData\fleet, which administrators,
the system and the agent's account alone can read. Run it again to bring it up to date; what is as it
should be is left alone. Run it as administrator.

.PARAMETER From
A checkout, a wheel, or what pip is to fetch; this checkout unless said otherwise.
.PARAMETER Python
Python 3.11 or newer.
.PARAMETER Broker
Where the broker is, mqtt://HOST:PORT (for a fleet.toml that is not there yet).
.PARAMETER Data
Folder of the prepared data (likewise).
.PARAMETER HostName
This host's name in the fleet (likewise).
.PARAMETER Bundle
This host's identity, given to `fleet join`.
.PARAMETER Root
Install into this folder, without a task and without rights of its own.
.PARAMETER NoStart
Install, but do not start.
.PARAMETER Force
Start although `fleet doctor` says that something fails.
.PARAMETER DryRun
Say what would be done.
.PARAMETER Uninstall
Remove it; settings and state stay.
.PARAMETER Purge
With -Uninstall: remove these too.
#>
[CmdletBinding()]
param(
    [string]$From = (Split-Path -Parent $PSScriptRoot),
    [string]$Python = 'python',
    [string]$Broker,
    [string]$Data,
    [string]$HostName,
    [string]$Bundle,
    [string]$Root,
    [switch]$NoStart,
    [switch]$Force,
    [switch]$DryRun,
    [switch]$Uninstall,
    [switch]$Purge
)

Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

$TaskName = 'Training fleet agent'
$Account = 'S-1-5-19' # LOCAL SERVICE, whatever it is called in the language of this Windows
$Programs = if ($Root) { Join-Path $Root 'Programs' } else { Join-Path $env:ProgramFiles 'fleet' }
$Home_ = if ($Root) { Join-Path $Root 'fleet' } else { Join-Path $env:ProgramData 'fleet' }
$Config = Join-Path $Home_ 'fleet.toml'
$State = Join-Path $Home_ 'state'
$Identity = Join-Path $Home_ 'identity'
$Venv = Join-Path $Programs 'venv'
$VenvPython = Join-Path $Venv 'Scripts\python.exe'
$Fleet = Join-Path $Venv 'Scripts\fleet.exe'
$Stamp = Join-Path $Programs 'installed.txt'

function Invoke-Step {
    # Does something, or says that it would be done.
    param([string]$What, [scriptblock]$Action)
    if ($DryRun) { Write-Output "would: $What" } else { & $Action }
}

function Invoke-Program {
    # Runs a program and fails when it does.
    param([string]$Program, [string[]]$Arguments)
    & $Program @Arguments
    if ($LASTEXITCODE -ne 0) { throw "$Program $($Arguments -join ' ') ended with $LASTEXITCODE" }
}

function Assert-Right {
    if ($Root -or $DryRun) { return }
    $me = [Security.Principal.WindowsPrincipal][Security.Principal.WindowsIdentity]::GetCurrent()
    if (-not $me.IsInRole([Security.Principal.WindowsBuiltInRole]::Administrator)) {
        throw 'this needs rights: run it as administrator, or try -DryRun'
    }
}

function Get-Fingerprint {
    # The same words, the same installation.
    if (Test-Path $From -PathType Container) {
        $files = 'agent', 'broker', 'coordinator' |
            ForEach-Object { Get-ChildItem (Join-Path $From $_) -Recurse -File } |
            Where-Object { $_.Extension -ne '.pyc' } | Sort-Object FullName
        $files = @($files) + @(Get-Item (Join-Path $From 'pyproject.toml'))
        return ($files | ForEach-Object { (Get-FileHash $_.FullName).Hash }) -join ' '
    }
    if (Test-Path $From) { return (Get-FileHash $From).Hash }
    return $From
}

function Install-Package {
    & $Python -c 'import sys; sys.exit(sys.version_info < (3, 11))'
    if ($LASTEXITCODE -ne 0) { throw "$Python is not Python 3.11 or newer; name one by -Python" }
    $base = & $Python -c 'import sys; print(sys.base_prefix)'
    if (-not $Root -and $env:USERPROFILE -and $base.StartsWith((Split-Path $env:USERPROFILE))) {
        throw "$Python is installed for one user, and the service cannot read it; install it for all users"
    }
    $wanted = Get-Fingerprint
    if ((Test-Path $Fleet) -and (Test-Path $Stamp) -and ((Get-Content $Stamp -Raw).Trim() -eq $wanted)) {
        Write-Output "the package is there already, in $Venv"
        return
    }
    Stop-Agent
    if (-not (Test-Path $VenvPython)) {
        Invoke-Step "make $Venv" { Invoke-Program $Python @('-m', 'venv', $Venv) }
    }
    $wish = if (Test-Path $From) { "$From[trainers]" } else { $From -replace '^[A-Za-z0-9._-]+', '$0[trainers]' }
    Invoke-Step "install $wish (with torch this takes minutes)" {
        $pip = @('-I', '-m', 'pip', 'install', '--quiet', '--disable-pip-version-check')
        Invoke-Program $VenvPython ($pip + @('--upgrade', $wish))
        if (Test-Path $From -PathType Leaf) {
            Invoke-Program $VenvPython ($pip + @('--force-reinstall', '--no-deps', $wish))
        }
        Set-Content -Path $Stamp -Value $wanted -Encoding ascii
    }
}

function Protect-Folder {
    # Inherited rights go; the system, administrators and the agent's account stay.
    if (-not (Test-Path $State)) {
        Invoke-Step "make $Home_" { New-Item -ItemType Directory -Path $Home_, $State -Force | Out-Null }
    }
    if ($Root) { return }
    Invoke-Step "let only the agent and administrators into $Home_" {
        Invoke-Program icacls @($Home_, '/inheritance:r', '/grant:r', '*S-1-5-18:(OI)(CI)F',
            '*S-1-5-32-544:(OI)(CI)F', "*${Account}:(OI)(CI)M", '/T', '/Q') | Out-Null
    }
}

function Install-Config {
    if (Test-Path $Config) {
        Write-Output "$Config is there already and stays as it is"
        return
    }
    # Between single quotes TOML takes everything as it is written, backslashes too.
    $said = @{ url = $Broker; data = $Data; host = $HostName; state = $State }
    foreach ($key in @($said.Keys)) {
        if ($said[$key] -match "['\x00-\x1f]") { throw "${key}: an apostrophe or a control character is in it" }
    }
    $section = ''
    $lines = foreach ($line in Get-Content (Join-Path $PSScriptRoot 'fleet.toml.example') -Encoding utf8) {
        if ($line -match '^\[(\w+)\]') { $section = $Matches[1] }
        $ours = $line -match '^#(url|data|host|state) = '
        $key = if ($ours) { $Matches[1] } else { '' }
        if ($ours -and $said[$key] -and ($section -eq 'agent' -or $key -eq 'url')) {
            "$key = '$($said[$key])'"
        } else {
            $line
        }
    }
    Invoke-Step "write $Config" {
        $plain = New-Object Text.UTF8Encoding $false
        [IO.File]::WriteAllLines($Config, [string[]]$lines, $plain)
    }
}

function Stop-Agent {
    if ($Root -or -not (Get-ScheduledTask -TaskName $TaskName -ErrorAction SilentlyContinue)) { return }
    Invoke-Step 'stop the agent' {
        Stop-ScheduledTask -TaskName $TaskName
        # Until its programs have ended, no file of theirs can be replaced or deleted.
        $last = (Get-Date).AddMinutes(2)
        while ((Get-Date) -lt $last -and
            (Get-CimInstance Win32_Process | Where-Object { "$($_.CommandLine)".Contains($Venv) })) {
            Start-Sleep -Seconds 1
        }
    }
}

function Invoke-Fleet {
    param([string[]]$Arguments)
    & $Fleet @Arguments | Out-Host
    return $LASTEXITCODE
}

function Join-Fleet {
    if (-not $Bundle) { return }
    if (-not (Test-Path $Bundle)) { throw "-Bundle ${Bundle}: is not there" }
    Invoke-Step "join with $Bundle" {
        & $Fleet join --help *> $null
        if ($LASTEXITCODE -ne 0) { throw "-Bundle: this version has no 'fleet join'" }
        $env:FLEET_CONFIG = $Config
        # Not where whoever runs this has theirs: the task's user has another home.
        if ((Invoke-Fleet @('join', $Bundle, '-o', $Identity)) -ne 0) { throw "fleet join refused $Bundle" }
    }
}

function Test-Machine {
    Invoke-Step 'check this machine: fleet doctor' {
        $who = if (Test-Path $Identity) { @('--identity', $Identity) } else { @() }
        $code = Invoke-Fleet (@('--config', $Config) + $who + @('doctor', '--role', 'agent'))
        if ($code -ne 0 -and -not $Force) {
            throw 'not started, since something fails; mend it and run this again, or add -Force'
        }
    }
}

function Register-Agent {
    if ($Root) { return }
    Invoke-Step "register and start the task '$TaskName'" {
        $who = if (Test-Path $Identity) { "--identity `"$Identity`" " } else { '' }
        $action = New-ScheduledTaskAction -Execute $Fleet -WorkingDirectory $State `
            -Argument "--config `"$Config`" ${who}agent"
        $trigger = New-ScheduledTaskTrigger -AtStartup
        $principal = New-ScheduledTaskPrincipal -UserId $Account -LogonType ServiceAccount
        $settings = New-ScheduledTaskSettingsSet -RestartCount 999 `
            -RestartInterval (New-TimeSpan -Minutes 1) -ExecutionTimeLimit ([TimeSpan]::Zero) `
            -AllowStartIfOnBatteries -DontStopIfGoingOnBatteries -StartWhenAvailable `
            -MultipleInstances IgnoreNew
        Register-ScheduledTask -TaskName $TaskName -Action $action -Trigger $trigger `
            -Principal $principal -Settings $settings -Force | Out-Null
        if (-not $NoStart) { Start-ScheduledTask -TaskName $TaskName }
    }
}

function Remove-Agent {
    Stop-Agent
    if (-not $Root -and (Get-ScheduledTask -TaskName $TaskName -ErrorAction SilentlyContinue)) {
        Invoke-Step "remove the task '$TaskName'" { Unregister-ScheduledTask -TaskName $TaskName -Confirm:$false }
    }
    $folders = if ($Purge) { $Programs, $Home_ } else { , $Programs }
    foreach ($folder in $folders) {
        if (Test-Path $folder) { Invoke-Step "remove $folder" { Remove-Item -Recurse -Force $folder } }
    }
    if (-not $Purge) { Write-Output "$Home_ stays; -Purge removes it, results that wait there too" }
}

if ($Purge -and -not $Uninstall) { throw '-Purge: only with -Uninstall' }
Assert-Right
if ($Uninstall) {
    Remove-Agent
} else {
    Protect-Folder
    Install-Package
    Install-Config
    Join-Fleet
    Test-Machine
    Register-Agent
}
